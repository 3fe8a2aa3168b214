"""How a student is made from its start."""
