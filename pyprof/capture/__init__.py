"""What runs inside the user's program: markers on every PyTorch call, and the embedded collector. Needs torch."""
