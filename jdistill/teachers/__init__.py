"""Who answers: encoders, judges, files of vectors; and the cache of their answers."""
