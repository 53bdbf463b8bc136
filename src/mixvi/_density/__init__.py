"""What is approximated: the protocol, and the densities that answer it."""
