"""Where every value lies: the state of each tensor along each mesh axis."""
