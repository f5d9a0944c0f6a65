"""What may be deleted: one decision, over values (see each module), and the effects that carry it out."""
