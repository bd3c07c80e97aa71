"""Parts of one model, in order, for books that tell parts apart and not models."""

from serving.vocabulary.layers import Part

PARTS = tuple(Part("m", first, first + 8) for first in range(0, 56, 8))
A, B, C, D, E, F, G = PARTS
