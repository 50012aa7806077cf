"""Facts that providers document: each line with its source and the day on which it was read.

Nothing here is a guess: a value that no page documents is `None`, and requests that depend on it have no
bound.

- `data`: a file for each provider, with its hosts, prices of regions, service tiers, models, the images that
  these make, hidden prompts, endpoints that count input, and what requests usually use.
- `provider`: what these files may say; `models`, `regions`: how their lines are found.
- `images`, `documents`: the rules for images and PDFs that models refer to.
- `allowances`: tokens around texts where no provider documents them; `outputs`: the limits of answers.
- `billing`: units that are billed besides tokens, and the places where a bill is stated.
- `priors`: what requests and answers usually use, which no bound uses.
- `finish_reasons`: the reasons of answers that have not ended, whose usage is not complete.
- `surface`: the parts, fields and methods of PydanticAI that the account understands.
- `settings`: how settings of a request can add to the bill.
"""
