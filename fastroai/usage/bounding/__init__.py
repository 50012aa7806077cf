"""Upper bounds on what one request can use and cost, before it is sent."""
