"""From a table in a file to a posterior that is judged, saved, shown and asked for predictions.

The command `mixvi` (`mixvi.cli`) is a thin dress over this.
"""

from ._columns import Wishes as Wishes
from ._file import check_writable as check_writable
from ._file import load as load
from ._file import save as save
from ._file import write_atomically as write_atomically
from ._fit import Asked as Asked
from ._fit import Fitted as Fitted
from ._fit import fit_table as fit_table
from ._model import Predicted as Predicted
from ._model import TableModel as TableModel
from ._read import Options as Options
from ._read import Raw as Raw
