"""The TorchX scheduler `headway`: `torchx run -s headway` submits to `headway serve`.

TorchX finds `scheduler.create_scheduler` by its entry point. `app_jobs` turns an app into a job,
`torchrun` takes a torchrun command apart, since Headway starts ranks itself.
"""
