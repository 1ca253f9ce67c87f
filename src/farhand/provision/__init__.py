"""Provisioners: what can start machines, each of which is a worker that dials back in.

No task is ever submitted to a scheduler. What is submitted is a worker, with a token of its own, and from
there on everything goes as with any other.

- `config` reads provisioners.json, `source` watches it;
- `interface` is what a provisioner is: submit, status, cancel, interval; `slurm` and `command` are those
  there are, `processes` runs what they run;
- `desk` has the machines of one provisioner in hand, by the decisions of `steps`; `provisioning` has the
  desks, and asks for machines.
"""
