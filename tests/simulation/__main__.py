"""``python -m tests.simulation``."""
import sys, time
from tests.simulation.generate import plan_of
from tests.simulation.world import World
from tests.simulation.ledger import Violation
a,b=map(int,sys.argv[1].split(":"))
t=time.time(); bad={}
for seed in range(a,b):
    w=World(plan_of(seed), tells=print if len(sys.argv)>2 else None)
    try: w.run()
    except Violation as v:
        bad.setdefault(v.invariant,[]).append((seed,str(v)[:200]))
        if len(sys.argv)>2: print(v)
for k,v in bad.items(): print(len(v),k); [print("    ",x) for x in v[:3]]
print((time.time()-t)/(b-a)*1000,"ms per seed")
