#!/usr/bin/env python3
"""What the sagemaker-training toolkit makes of the folder that a job finds.

Prints one JSON object: the toolkit's description of the job, and each variable that the toolkit
would set and this process has with another value, or lacks.
"""

from __future__ import annotations

import json
import os

# As it was found: the toolkit changes it.
FOUND = dict(os.environ)

from sagemaker_training import environment  # noqa: E402

ABOUT_THE_TOOLKIT = {"SM_TRAINING_ENV", "SM_TOPOLOGY", "SM_USER_ENTRY_POINT", "SM_MODULE_NAME",
                     "SM_MODULE_DIR", "SM_FRAMEWORK_MODULE"}
FIELDS = ("channel_input_dirs", "current_host", "hosts", "hyperparameters", "input_data_config",
          "network_interface_name", "model_dir", "output_data_dir", "job_name", "instance_groups",
          "current_instance_type", "is_master")


def main() -> None:
    """Reads everything as a training container does."""
    job = environment.Environment()
    wanted = {name: value for name, value in job.to_env_vars().items()
              if name not in ABOUT_THE_TOOLKIT}
    differ = {name: [value, FOUND.get(name)] for name, value in wanted.items()
              if FOUND.get(name) != value}
    print(json.dumps({**{name: getattr(job, name) for name in FIELDS}, "variables": len(wanted),
                      "variables_that_differ": differ}))


if __name__ == "__main__":
    main()
