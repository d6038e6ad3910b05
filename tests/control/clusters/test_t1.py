from tests.control.clusters.gang import launched
from cloudgpu.control.clusters.power import stop_all, end_all
from cloudgpu.control.clusters.start import start_all
from cloudgpu.control.lifecycle.start import new_lease
from datetime import timedelta
def test_x(lab):
    rows=launched(lab)
    print([ (r.name,r.cluster) for r in rows])
    rows=lab.session.find_whole("train","stop")
    done=stop_all(lab.session, rows, why="x")
    print(done.faults,[r.state for r in done.machines])
    lab.later(minutes=1)
    done=start_all(lab.session, done.machines, new_lease(lab.session, rows[0], None), wait=False)
    print(done.faults,[r.state for r in done.machines])
    print(end_all(lab.session, done.machines, why="y"))
    assert not lab.machines()
