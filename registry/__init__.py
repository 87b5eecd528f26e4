"""The registry: nodes for operators, scrape targets for Prometheus."""
