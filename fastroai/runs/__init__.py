"""The base that pipelines and graphs share: a run of steps, with or without a store."""
