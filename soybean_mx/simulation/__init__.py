"""Predicted time, memory and traffic of training steps: a simulator that plays what the lowering writes."""
from soybean_mx.simulation.operator_times import Roofline
from soybean_mx.simulation.simulator import Simulation, simulate

__all__ = ["Roofline", "Simulation", "simulate"]
