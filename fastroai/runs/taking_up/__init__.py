"""Runs that no process has are taken up, stopped from elsewhere, or forked."""
