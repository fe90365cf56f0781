"""Recovery theory and certificates, checked against slow independent computations."""
