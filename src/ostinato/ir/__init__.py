"""The records that an encoder makes and a backend runs, and the hazard engine that orders them."""
