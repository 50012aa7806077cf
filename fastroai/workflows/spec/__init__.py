"""What a workflow spec says."""
