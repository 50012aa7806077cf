"""The language of workflow specs: how they are read, checked, written and drawn."""
