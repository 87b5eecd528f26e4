"""Who is out there: nodes for operators, scrape targets for Prometheus."""
