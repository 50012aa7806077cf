"""Facts that providers document: one table, each line with its source and the day on which it was read.

Nothing here is a guess: a value that no page documents is `None`, and requests that depend on it have no
bound.

- `models`: limits, images and documents of models, and their makers; `images`: the rules it refers to.
- `documents`: the rules for PDFs that `models` refers to.
- `made_images`: the images that models make.
- `providers`: hosts, service tiers, searches, caches.
- `allowances`: tokens around texts, and hidden prompts; `outputs`: the limits of answers.
- `billing`: units that are billed besides tokens, and the places where a bill is stated.
- `counts`: endpoints that count input for free; `priors`: what requests usually use, which no bound uses.
- `regions`: prices of regions.
- `finish_reasons`: why answers end, and whether their usage is complete.
- `surface`: the parts, fields and methods of PydanticAI that the account understands.
- `settings`: how settings of a request can add to the bill.
"""
