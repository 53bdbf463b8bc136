"""From a Gaussian to what may be said of it: fresh draws, far probes, other modes."""
