"""After deployment: whether new episodes still agree with a certificate."""
