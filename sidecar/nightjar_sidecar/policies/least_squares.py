"""Non-negative least squares for a handful of features, without dependencies."""

from collections.abc import Iterable, Sequence

# Relative to the features' own weight: enough to decide between features that the data cannot tell apart.
_RIDGE = 1e-4


def fit(points: Iterable[tuple[Sequence[float], float, float]], features: int) -> list[float]:
    """Coefficients ≥ 0 of the fit to points (features, value, weight).

    A feature whose coefficient would be negative is left out and the rest fitted again; for two or three
    features this is the optimum but for rare ties.
    """
    matrix = [[0.0] * features for _ in range(features)]
    right = [0.0] * features
    for row, value, weight in points:
        for i in range(features):
            scaled = weight * row[i]
            right[i] += scaled * value
            for j in range(features):
                matrix[i][j] += scaled * row[j]
    active = [index for index in range(features) if matrix[index][index] > 0]
    while active:
        solution = _solve(
            [[matrix[i][j] * (1 + _RIDGE * (i == j)) for j in active] for i in active],
            [right[i] for i in active],
        )
        worst = min(range(len(active)), key=solution.__getitem__)
        if solution[worst] >= 0:
            by_feature = dict(zip(active, solution, strict=True))
            return [by_feature.get(index, 0.0) for index in range(features)]
        del active[worst]
    return [0.0] * features


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gaussian elimination; the ridge makes the matrix positive definite, so no pivoting is needed."""
    size = len(right)
    for pivot in range(size):
        for row in range(pivot + 1, size):
            factor = matrix[row][pivot] / matrix[pivot][pivot]
            for column in range(pivot, size):
                matrix[row][column] -= factor * matrix[pivot][column]
            right[row] -= factor * right[pivot]
    for pivot in reversed(range(size)):
        known = sum(matrix[pivot][column] * right[column] for column in range(pivot + 1, size))
        right[pivot] = (right[pivot] - known) / matrix[pivot][pivot]
    return right
