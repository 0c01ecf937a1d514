"""What is checked."""
