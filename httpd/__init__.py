"""The HTTP shell that both daemons wear; it knows neither apps nor nodes."""
