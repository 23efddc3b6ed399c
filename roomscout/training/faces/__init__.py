"""`RoomEnv` in the shapes that trainers take: one module for each library, imported by those who use it."""
