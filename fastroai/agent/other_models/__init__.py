"""Models besides chat models, batches, and requests that the account cannot follow."""
