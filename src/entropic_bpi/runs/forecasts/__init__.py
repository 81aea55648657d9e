"""How much longer: trial runs, the time that plans take, and declarations that would help."""
