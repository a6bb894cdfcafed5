from warm_integrations.core import *
