"""What runs in the peers' own environments. Nothing here may import entropic_bpi: it is not installed there."""
