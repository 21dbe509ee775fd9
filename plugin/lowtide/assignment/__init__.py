"""What a life gives to its processes: the deployment for workers, settings for the service."""
