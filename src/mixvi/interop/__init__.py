"""Adaptors to other libraries, one module each; none is imported before it is asked for."""
