"""What FastroAI costs, each figure beside the bare alternative, measured in the same run."""
