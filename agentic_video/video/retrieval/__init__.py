"""Finding frames by text: encoder, cache of embeddings, retriever, and its one-per-node service."""
