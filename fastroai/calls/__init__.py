"""Agent calls as values: what a call is made with, and what it gives back."""
