"""External graders: answer matching, a judge that reads, a verifier that looks, and the client of their servers."""
