"""Declarations of typed functions: signatures, contracts, conditions and their checks."""
