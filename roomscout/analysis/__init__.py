"""What a finished run says, or one in progress: read through RunReader alone, and never changed."""
