"""Letters that workers write and people approve: `cd examples && python -m distributed`."""
