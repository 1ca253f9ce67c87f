"""Learning to read handwritten digits: a training sweep on the data that comes with scikit-learn.

A small network is trained epoch by epoch; its loss and accuracy stream as series while it learns.
"""

from __future__ import annotations

import numpy
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from farhand import emit, flow, task

CLASSES = list(range(10))


@task
def fit(lr: float, hidden: int, seed: int, epochs: int) -> dict[str, float]:
    """Train on three quarters of the 1,797 digits, and judge on the rest."""
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images / 16.0, labels, test_size=0.25, random_state=0, stratify=labels
    )
    network = MLPClassifier((hidden,), learning_rate_init=lr, batch_size=64, random_state=seed)
    order = numpy.random.default_rng(seed)
    accuracy = 0.0
    for _ in range(epochs):
        shuffled = order.permutation(len(train_x))
        network.partial_fit(train_x[shuffled], train_y[shuffled], classes=CLASSES)
        accuracy = float(network.score(test_x, test_y))
        emit(loss=float(network.loss_), accuracy=accuracy)
    return {"accuracy": round(accuracy, 4), "loss": round(float(network.loss_), 6)}


@flow
def train(lr: float = 0.01, hidden: int = 32, seed: int = 0, epochs: int = 10) -> dict[str, float]:
    """Train a network that reads digits; its final accuracy is the result."""
    return fit(lr, hidden, seed, epochs)


if __name__ == "__main__":
    print(train())
