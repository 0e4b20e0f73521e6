"""The large LSTM of Zaremba et al. (2014) on the Penn Treebank: 35 steps, 10,000 words."""

from __future__ import annotations

from torch import Tensor, nn

from headway.calibrate.models.shipped.tasks import TokenPredictor, tokens

_VOCABULARY = 10_000
_WIDTH = 1500
_STEPS = 35
_DROPOUT = 0.65


def lstm_ptb(batch_size: int) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Two layers of 1500 units: 66.03 million parameters."""
    return TokenPredictor(_Lstm()), tokens(batch_size, _STEPS, _VOCABULARY)


class _Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_VOCABULARY, _WIDTH)
        self.layers = nn.LSTM(_WIDTH, _WIDTH, num_layers=2, dropout=_DROPOUT, batch_first=True)
        self.dropout = nn.Dropout(_DROPOUT)
        self.head = nn.Linear(_WIDTH, _VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.layers(self.dropout(self.embedding(tokens)))
        scores: Tensor = self.head(self.dropout(states))
        return scores
