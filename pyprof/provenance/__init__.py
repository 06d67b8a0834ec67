"""What inductor makes of a program: which ops of the program each kernel of a compiled graph computes. Needs torch."""
