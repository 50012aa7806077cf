"""Documents that people write, such as YAML, as plain data with the place of everything in it."""
