"""The product on a cluster whose node really runs pods: images, operator, engines, sidecars."""
