"""Values shared by all layers: frozen, without I/O and without a clock."""
