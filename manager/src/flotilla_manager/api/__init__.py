"""What clients see: the API for people, the API for programs, control, health."""
