"""What providers document: one table, each line with its source and the day on which it was read.

Nothing here is a guess: a value that no page documents is `None`, and requests that depend on it have no
bound.

- `models`: limits, images and documents of models, and who makes them; `images`: the rules that it names.
- `documents`: the rules for PDFs that it names.
- `made_images`: the images that models make.
- `providers`: hosts, service tiers, searches, caches.
- `allowances`: tokens around texts, and hidden prompts; `outputs`: what limits answers.
- `billing`: what is billed besides tokens, and where a bill is stated.
- `regions`: prices of regions.
- `finish_reasons`: why answers end, and whether their usage is complete.
- `settings`: what settings of a request can add to the bill.
"""
