"""What pipelines and graphs share: a run of steps, on record or not."""
