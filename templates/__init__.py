"""What is emitted, one folder a back end. No arithmetic and no nested conditions in here."""
