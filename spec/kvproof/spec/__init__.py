"""The executable specification of the KV-cache layer.

Read it from the top: `quantities` and `rules` give the words, `state` and `transitions`
the block pool, `block_pool` its operations under vLLM's names, `pool_properties` and
`steps` what holds. Standard library only.
"""
